/* Texts of tokens, numbered in the order of their first appearance, for inputs that state no ids;
 * and the texts of the ids that are stated. In memory, in SQLite. */
#ifndef NEARTIE_COLLECTOR_TEXTS_H
#define NEARTIE_COLLECTOR_TEXTS_H

#include "collector/logprobs.h"
#include "sql/store.h"

struct texts;

int texts_open(struct texts **out, struct err *err);
void texts_close(struct texts *texts);

/* The connection, for others who need one; borrowed. */
struct sqlite3 *texts_db(struct texts *texts);

/* Note an entry's text, and its id where it has one. */
int texts_add(struct texts *texts, const struct logprob_entry *entry, struct err *err);

/* The number of an entry's text, from 0; -1 where it has none that was noted. */
int32_t texts_find(struct texts *texts, const struct logprob_entry *entry);

/* A hash over all texts and their numbers. */
uint64_t texts_hash(struct texts *texts);

/* The texts by stated id, or by number; borrowed until texts_close. */
const struct store_vocab *texts_vocab(struct texts *texts, bool by_id);

#endif
