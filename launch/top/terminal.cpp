#include "launch/top/terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "runtime/base/error.h"

namespace ferry {
namespace {

// What a terminal of ECMA-48 and xterm does.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";         // the other screen, no cursor
constexpr std::string_view kLeave = "\x1b[0m\x1b[?25h\x1b[?1049l";  // colours, cursor and screen as they were
constexpr std::string_view kHome = "\x1b[H", kRestOfLine = "\x1b[K", kRestOfScreen = "\x1b[J";

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP}) sigaddset(&set, signal);
  return set;
}

/// From here on they come through the descriptor only.
FileDescriptor open_signals() {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  FileDescriptor signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals.get() < 0)
    throw Error(ErrorCode::kResourceExhausted, std::string("cannot watch for signals: ") + std::strerror(errno));
  return signals;
}

/// False if the terminal is gone.
bool write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t num_written = write(STDOUT_FILENO, text.data(), text.size());
    if (num_written < 0 && errno == EINTR) continue;
    if (num_written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(num_written));
  }
  return true;
}

}  // namespace

Terminal::Terminal(Mode mode) : mode_(mode), signals_(open_signals()) { enter(); }

Terminal::~Terminal() { leave(); }

void Terminal::enter() {
  if (mode_ == Mode::kLines) return;
  termios now{};
  reads_keys_ = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &now) == 0;
  if (reads_keys_) {
    before_ = now;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    now.c_cc[VMIN] = 0;  // reading does not wait
    now.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  write_all(kEnter);
}

void Terminal::leave() {
  if (mode_ == Mode::kLines) return;
  write_all(kLeave);
  if (before_) tcsetattr(STDIN_FILENO, TCSAFLUSH, &*before_);
  before_.reset();
}

/// Ctrl-Z: stops as any program does, and goes on where the shell lets it.
void Terminal::suspend() {
  leave();
  raise(SIGSTOP);
  enter();
}

std::vector<int> Terminal::descriptors() const {
  return reads_keys_ ? std::vector<int>{signals_.get(), STDIN_FILENO} : std::vector<int>{signals_.get()};
}

std::optional<TopEvent> Terminal::next_event() {
  signalfd_siginfo signal{};
  if (read(signals_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
    if (signal.ssi_signo == SIGTSTP) suspend();
    const bool ends = signal.ssi_signo != SIGTSTP && signal.ssi_signo != SIGWINCH;
    return ends ? TopEvent::kQuit : TopEvent::kRedraw;
  }
  char key = 0;
  if (!reads_keys_) return std::nullopt;
  const ssize_t num_read = read(STDIN_FILENO, &key, 1);
  if (num_read < 0 && errno != EINTR && errno != EAGAIN) return TopEvent::kQuit;  // the terminal is gone
  if (num_read != 1) return std::nullopt;
  if (key == 'q' || key == 'Q') return TopEvent::kQuit;
  return key == ' ' ? TopEvent::kRefresh : TopEvent::kRedraw;
}

void Terminal::show(const std::vector<std::string>& lines) {
  std::string text;
  if (mode_ == Mode::kScreen) {
    text += kHome;
    for (std::size_t i = 0; i < lines.size(); ++i) text.append(i == 0 ? "" : "\r\n").append(lines[i]).append(kRestOfLine);
    text += kRestOfScreen;
  } else {
    for (const std::string& line : lines) text += line + "\n";
  }
  if (!write_all(text))
    throw Error(ErrorCode::kUnavailable, std::string("cannot write to standard output: ") + std::strerror(errno));
}

Screen terminal_screen() {
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  Screen screen{.columns = 80, .rows = 24};
  if (is_known) screen = {.columns = size.ws_col, .rows = size.ws_row};
  screen.has_blocks = std::string_view(nl_langinfo(CODESET)) == "UTF-8";
  return screen;
}

}  // namespace ferry
