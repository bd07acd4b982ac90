"""The only importers of pymongo, bson and redis: one concrete class a collection or list family."""
