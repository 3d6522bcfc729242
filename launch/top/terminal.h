#pragma once

#include <termios.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/top/styled_line.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {

enum class TopEvent { kQuit, kRefresh, kRedraw };

/// Takes signals and keys for a program that waits on descriptors: SIGINT, SIGTERM, SIGHUP and q quit, a space refreshes, a
/// change of the window's size redraws; after Ctrl-Z and fg the screen is taken again. With `Mode::kScreen` it owns the
/// terminal while it lives: its other screen, without cursor, without echo; whatever ends it leaves the terminal as it was.
class Terminal {
 public:
  enum class Mode { kLines, kScreen };
  explicit Terminal(Mode mode);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// To wait for: one of them can be read when there is an event.
  std::vector<int> descriptors() const;
  std::optional<TopEvent> next_event();
  /// In place of what the screen shows. Throws Error{kUnavailable} if the terminal is gone.
  void show(const std::vector<std::string>& lines);

 private:
  void enter();
  void leave();
  void suspend();

  const Mode mode_;
  bool reads_keys_ = false;
  std::optional<termios> before_;  // of the terminal, if it was changed
  FileDescriptor signals_;
};

/// What standard output is: 80 x 24 of a terminal that does not say.
Screen terminal_screen();

}  // namespace ferry
