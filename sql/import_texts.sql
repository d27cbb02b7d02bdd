-- What an import knows of tokens, in memory: every text, numbered in the order of its first
-- appearance, and the first text of every id that an engine states.
CREATE TABLE texts(id INTEGER PRIMARY KEY, text BLOB NOT NULL UNIQUE);
CREATE TABLE names(id INTEGER PRIMARY KEY, text BLOB NOT NULL);
