"""What a case is made of: a broker, topics, applications as child processes, conditions to wait for, a report."""
