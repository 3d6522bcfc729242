#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "launch/commands.h"
#include "launch/output.h"
#include "launch/top/figures.h"
#include "launch/top/frame.h"
#include "launch/top/rates.h"
#include "launch/top/status_client.h"
#include "launch/top/terminal.h"
#include "runtime/base/error.h"
#include "runtime/server/live/live_json.h"

namespace ferry {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAwayPeriod{2000};  // at least, until a server that is away is asked again
constexpr int kPlainColumns = 100;                      // of a frame that goes to a file or a pipe

std::string without_line_end(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

/// Looks at a server at every interval, and shows what it sees.
class Top {
 public:
  Top(const TopOptions& options, Terminal::Mode mode)
      : options_(options),
        interval_(std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(options.interval_s))),
        is_screen_(mode == Terminal::Mode::kScreen),
        client_(make_target(options), times_),
        terminal_(mode) {}

  /// Until somebody ends it or, with --once, the frame is printed.
  void run() {
    if (is_screen_) draw();
    while (!is_over_) {
      const SteadyClock::time_point now = SteadyClock::now();
      if (!client_.is_asking() && now >= next_look_) {
        client_.ask();
        next_look_ = now + interval_;
      }
      const auto until = std::chrono::duration_cast<std::chrono::milliseconds>(next_look_ - now) + std::chrono::milliseconds(1);
      const auto timeout = client_.is_asking() ? times_.answer : until;
      if (const std::optional<StatusAnswer> answer = client_.wait(terminal_.descriptors(), timeout)) take(*answer);
      while (const std::optional<TopEvent> event = terminal_.next_event()) act_on(*event);
    }
  }

 private:
  void act_on(TopEvent event) {
    switch (event) {
      case TopEvent::kQuit: is_over_ = true; break;
      case TopEvent::kRefresh: next_look_ = SteadyClock::now(); break;
      case TopEvent::kRedraw:
        if (is_screen_) draw();
        break;
    }
  }

  void take(const StatusAnswer& answer) {
    std::string complaint = answer.complaint;
    if (complaint.empty()) {
      try {
        history_.add(parse_live_status(answer.body, client_.target().status_url));
      } catch (const Error& error) {
        complaint = error.what();
      }
    }
    if (!complaint.empty()) return miss(complaint, answer.is_refused);
    complaint_.clear();
    last_seen_ = SteadyClock::now();
    ++num_looks_;
    if (options_.json) {
      terminal_.show({without_line_end(answer.body)});
    } else if (is_screen_) {
      draw();
    } else if (!options_.once || num_looks_ == 2) {
      print();
    }
    is_over_ |= options_.once && (options_.json || num_looks_ == 2);
  }

  /// There was nothing to be seen.
  void miss(const std::string& complaint, bool is_refused) {
    if (options_.once) throw Error(is_refused ? ErrorCode::kFailedPrecondition : ErrorCode::kUnavailable, complaint);
    if (!is_screen_ && complaint != complaint_) std::fprintf(stderr, "ferry: %s; it is asked again\n", complaint.c_str());
    complaint_ = complaint;
    next_look_ = std::max(next_look_, SteadyClock::now() + kAwayPeriod);
    if (is_screen_) draw();
  }

  void draw() {
    Screen screen = terminal_screen();
    screen.has_colors = !options_.no_color;
    if (!complaint_.empty() || history_.empty()) return terminal_.show(draw_absence(screen));
    terminal_.show(draw_frame(history_, screen));
  }

  /// One line about a server that does not answer; so far it is asked for the first time.
  std::vector<std::string> draw_absence(const Screen& screen) const {
    StyledLine line;
    if (complaint_.empty()) {
      line.add("asking " + client_.target().server + " ...");
    } else {
      line.add(complaint_ + "; it is asked again", Style::kBad);
      const double seconds =
          std::chrono::duration<double>(SteadyClock::now() - last_seen_.value_or(SteadyClock::now())).count();
      if (last_seen_) line.add(", last seen " + age_text(seconds) + " ago");
    }
    return {line.render(screen)};
  }

  /// A frame by itself.
  void print() {
    Screen screen = terminal_screen();
    const bool is_terminal = isatty(STDOUT_FILENO) == 1;
    screen.rows = 0;
    if (!is_terminal) screen.columns = kPlainColumns;
    screen.has_colors = is_terminal && !options_.no_color && !options_.term.empty() && options_.term != "dumb";
    std::vector<std::string> lines = draw_frame(history_, screen);
    if (!options_.once) lines.emplace_back();
    terminal_.show(lines);
  }

  const TopOptions& options_;
  const SteadyClock::duration interval_;
  const bool is_screen_;
  const StatusTimes times_;
  StatusClient client_;
  Terminal terminal_;
  LiveHistory history_;
  std::string complaint_;  // why the last look saw nothing
  std::optional<SteadyClock::time_point> last_seen_;
  SteadyClock::time_point next_look_{};
  int num_looks_ = 0;
  bool is_over_ = false;
};

}  // namespace

int run_top(const TopOptions& options) {
  outlive_readers();
  std::setlocale(LC_CTYPE, "");  // what characters the terminal has
  const bool is_capable = !options.term.empty() && options.term != "dumb";
  const bool is_screen = !options.once && !options.json && is_capable && isatty(STDOUT_FILENO) == 1;
  Top(options, is_screen ? Terminal::Mode::kScreen : Terminal::Mode::kLines).run();
  return 0;
}

}  // namespace ferry
