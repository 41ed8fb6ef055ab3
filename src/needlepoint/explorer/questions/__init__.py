"""What can be asked: a question is read from JSON and checked without computing, then answered in a worker.

`reading` checks documents, `asking` is the table of kinds; each other file is one kind of question with its answer.
"""
