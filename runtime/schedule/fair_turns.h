#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace ferry {

/// Deficit round robin (Shreedhar and Varghese, Efficient Fair Queuing Using Deficit Round Robin, SIGCOMM 1995): accounts take
/// turns, and each may take `turn_tokens` more in its turn than it had left over from the last one.
///
///   turns.keep(asking);                         // who asks for something now
///   while (turns.next_may_take(cost_of_next)) …  // true: it is next()'s turn, and it has enough for its next piece
///   turns.take(tokens);                          // next() got them
///
/// What an account has left is less than its next piece, so that a debt or a credit is never more than a turn and a piece.
/// Who asks for nothing leaves the round with nothing: having been idle gives no credit. Who comes back stands at the end.
class FairTurns {
 public:
  /// `turn_tokens` >= 1; as many as a piece at least make a round short.
  explicit FairTurns(int64_t turn_tokens) : turn_tokens_(turn_tokens) {}

  /// Those that ask are in the round, in the order of their last turns, and behind them those that were not, in the order of
  /// `asking`. Accounts are small numbers, each once.
  void keep(std::span<const int32_t> asking);
  /// next() has nothing more to ask for.
  void leave();

  bool empty() const { return round_.empty(); }
  /// Whose turn it is.
  int32_t next() const { return round_.front(); }
  /// Whether next() has enough left for `tokens`; else its turn is over: it goes to the end, and the one behind it gets its
  /// own.
  bool next_may_take(int64_t tokens);
  void take(int64_t tokens) { account(next()).deficit -= tokens; }

  int64_t deficit_of(int32_t account) const;

 private:
  struct Account {
    int64_t deficit = 0;
    bool is_in_round = false, asks = false;
    bool has_turn = false;  // at the front, and has been given its tokens
  };

  Account& account(int32_t number) { return accounts_[static_cast<std::size_t>(number)]; }

  const int64_t turn_tokens_;
  std::vector<Account> accounts_;  // by number
  std::deque<int32_t> round_;
};

}  // namespace ferry
