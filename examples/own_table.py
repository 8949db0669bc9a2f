"""A persister of four methods, on a table of the application's own."""

import sqlite3


class OwnTable:
    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        self.db.row_factory = sqlite3.Row
        self.db.execute(
            "create table if not exists chores (id integer primary key autoincrement, queue text, run_at int,"
            " initial_run_at int, expire_at int, attempts int default 0, last_fail_at int, last_error text, task text)"
        )

    def read_tasks(self, queue):
        return [dict(row) for row in self.db.execute("select * from chores where queue = ?", (queue,))]

    def create_task(self, data):
        columns, values = ", ".join(data), ", ".join(f":{name}" for name in data)
        return self.db.execute(f"insert into chores ({columns}) values ({values})", data).lastrowid

    def update_task(self, attributes):
        changes = ", ".join(f"{name} = :{name}" for name in attributes)
        self.db.execute(f"update chores set {changes} where id = :id", attributes)

    def delete_task(self, task_id):
        self.db.execute("delete from chores where id = ?", (task_id,))
