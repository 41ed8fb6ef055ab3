"""One sqlite file a study: `store` over the tables of `schema`, results through `codec`.

`seals` show damage, `owners` say who works on it, `troubles` are the sentences when its file is gone.
"""
