-- One statement ends at each line that ends with a semicolon. The checks keep out what a claim could not read back.

CREATE TABLE tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL CHECK (typeof(queue) = 'text'),
    run_at INTEGER CHECK (typeof(run_at) IN ('integer', 'null')),
    initial_run_at INTEGER CHECK (typeof(initial_run_at) IN ('integer', 'null')),
    expire_at INTEGER CHECK (typeof(expire_at) IN ('integer', 'null')),
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (typeof(attempts) = 'integer'),
    last_fail_at INTEGER CHECK (typeof(last_fail_at) IN ('integer', 'null')),
    last_error TEXT CHECK (typeof(last_error) IN ('text', 'null')),
    task TEXT NOT NULL CHECK (typeof(task) = 'text'),
    closed_as TEXT CHECK (closed_as IN ('completed', 'failed', 'cancelled', 'expired')),
    closed_at INTEGER CHECK (typeof(closed_at) IN ('integer', 'null')),
    lease_owner TEXT,
    lease_token TEXT,
    lease_expires_at REAL
);

-- What a claim reads, in its order; the id stands at the end of every index entry.
CREATE INDEX tasks_due ON tasks (queue, run_at) WHERE run_at IS NOT NULL AND lease_token IS NULL;

-- What the reaper reads.
CREATE INDEX tasks_leased ON tasks (queue, lease_expires_at) WHERE lease_token IS NOT NULL;

-- Dead letters and the like, which a person looks through.
CREATE INDEX tasks_closed ON tasks (closed_as) WHERE closed_as IS NOT NULL;
