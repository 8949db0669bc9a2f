return {exact(now_or(''))}
