"""What a task's author touches: what is given to delay, and policies for retries."""
