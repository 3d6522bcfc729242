#include <cmath>
#include <string>
#include <vector>

#include "moe/remote/finite_rows.h"
#include "moe/remote/remote_token_dispatcher.h"
#include "runtime/base/error.h"

// This file handles replies that are not finite.
//
// A reply's rows are bad if their values are not finite although those of the token are. Damaged memory does that, and so does
// a weight that is not finite: then every rank computes such rows. So the same rows are computed elsewhere before anybody is
// blamed. A worker is lost if they come out finite there. Otherwise its reply is what the checkpoint makes of them.
//
// While all is well the sum alone is looked at, which has a fraction of the replies' rows and was just written. A sum is finite
// only if all that it adds up is.

namespace ferry {

/// On a device the host does not see the sum; there each reply was looked at before the device got it.
bool RemoteTokenDispatcher::is_sum_finite(const Flight& flight, ConstMatrixView sum) const {
  if (stream_.is_on_host()) return are_finite(sum, stream_.pool());
  for (const Wave& wave : flight.waves) {
    for (const Exchange& exchange : wave.exchanges) {
      if (!exchange.is_finite && Flight::counts(wave, exchange)) return false;
    }
  }
  return true;
}

/// Asks others for the rows of every reply that has bad ones, until none counts any more, and loses those who were wrong. False
/// if no reply has any: the sum is what the rows come to.
bool RemoteTokenDispatcher::replace_bad_rows(Flight& flight) {
  std::vector<const Exchange*> replaced;
  accused_ = 0;
  for (bool is_any = true; is_any;) {
    is_any = false;
    for (std::size_t i = 0; i < flight.waves.size(); ++i) {  // grows meanwhile
      Wave& wave = flight.waves[i];
      for (Exchange& exchange : wave.exchanges) {
        if (exchange.worker == here() || !Flight::counts(wave, exchange) || !has_bad_rows(flight, wave, exchange)) continue;
        ask_others(flight, wave, exchange);
        replaced.push_back(&exchange);
        is_any = true;
      }
    }
    while (!flight.is_complete()) await_some(flight);
  }
  accused_ = 0;
  for (const Exchange* exchange : replaced) {
    if (!is_confirmed(flight, *exchange)) lose(exchange->worker, bad_reply(*exchange));
  }
  return !replaced.empty();
}

/// The reply does not count any more, and its worker gets nothing new until all is known.
void RemoteTokenDispatcher::ask_others(Flight& flight, Wave& wave, Exchange& exchange) {
  const Error bad = bad_reply(exchange);
  if (hub_.fails_together()) throw Error(bad);
  accused_ |= uint64_t{1} << exchange.worker;
  exchange.state = State::kLost;
  try {
    cover(flight, wave, exchange);
  } catch (const Error& error) {
    throw Error(bad.code(), std::string(bad.what()) + "; nobody else can compute them: " + error.what());
  }
}

/// Looks at the rows of an exchange that is answered. A row of a token that is not finite itself is not bad.
bool RemoteTokenDispatcher::has_bad_rows(const Flight& flight, const Wave& wave, const Exchange& exchange) {
  const bool is_here = exchange.worker == here();
  HostRows copy;
  if (is_here) copy = HostRows(stream_, exchange.rows.dtype, exchange.rows.rows, exchange.rows.cols);
  if (is_here) copy.fetch(exchange.rows);
  const ConstMatrixView rows = is_here ? copy.look() : ConstMatrixView(lay_out_reply(exchange.header, exchange.reply));
  if (are_finite(rows, stream_.pool())) return false;
  const MatmulRows tokens = look_at(flight.args.tokens);
  const RankRows& plan = wave.plan.ranks[static_cast<std::size_t>(exchange.worker)];
  const bool is_by_token = options_.combine == CombineMode::kFast;
  for (int64_t row = 0; row < rows.rows; ++row) {
    if (is_row_finite(rows, row)) continue;
    const auto r = static_cast<std::size_t>(row);
    const int32_t token = plan.token_idx[is_by_token ? r : static_cast<std::size_t>(plan.row_token[r])];
    const bool is_token_finite = tokens.scales ? std::isfinite(tokens.scales.host()[token]) : is_row_finite(tokens.x, token);
    if (is_token_finite) return true;
  }
  return false;
}

/// Returns whether those who stand in for it gave bad rows as well, or not all of them are known.
bool RemoteTokenDispatcher::is_confirmed(const Flight& flight, const Exchange& exchange) {
  const Wave& wave = flight.waves[static_cast<std::size_t>(exchange.cover)];
  for (const Exchange& other : wave.exchanges) {
    if (other.state == State::kNone) continue;
    const bool is_known = other.state == State::kDone || other.cover >= 0;
    if (!is_known) return true;
    if (other.state == State::kDone ? has_bad_rows(flight, wave, other) : is_confirmed(flight, other)) return true;
  }
  return false;
}

Error RemoteTokenDispatcher::bad_reply(const Exchange& exchange) const {
  return {ErrorCode::kInternal, "rank " + std::to_string(seats_[exchange.worker].rank.value) + ": its reply for layer " +
                                    std::to_string(exchange.header.layer) + " of step " + std::to_string(exchange.header.step) +
                                    " holds values that are not finite; allowed: finite values for finite rows"};
}

}  // namespace ferry
