#pragma once

#include <span>

#include "comm/link.h"

// How the start of a job over links ends. All ranks have told each other what they work by, and some know before others that
// all agree. A worker that does not know it yet takes a rank that leaves for a lost one; so each worker says when it knows,
// and no coordinator goes on, or leaves, before all have.

namespace ferry {

constexpr int kLastWordTag = 6;  // beside those of moe/

/// As a worker, to its coordinators. Throws nothing: one that has gone needs no word.
void say_last_word(LinkHub& hub, std::span<Link* const> coordinators);
/// As a coordinator, from its workers. Throws nothing: whose link ends says none, and who says none until `deadline` will be
/// judged by its answers.
void hear_last_words(std::span<Link* const> workers, Deadline deadline);

}  // namespace ferry
