"""Worker processes: `worker` is what runs in one, `handle` is the server's side of it, `crew` is all of them."""
