#include "runtime/server/trace_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>

#include "profiler/capture.h"
#include "profiler/write_file.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxPathBytes = 1024;
constexpr std::ptrdiff_t kMaxParts = 16;

/// Makes `part` in the open folder `parent`, unless it is there, and opens it: not through a link.
FileDescriptor enter(const FileDescriptor& parent, const fs::path& part, const fs::path& whole) {
  const auto refuse = [&](ErrorCode code) {
    throw Error(code, "output_dir " + in_quotes(whole.string()) + ": " + in_quotes(part.string()) +
                          " cannot be used: " + std::strerror(errno));
  };
  if (::mkdirat(parent.get(), part.c_str(), 0777) != 0 && errno != EEXIST) refuse(ErrorCode::kFailedPrecondition);
  FileDescriptor folder(::openat(parent.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() >= 0) return folder;
  struct stat status {};
  const bool is_link = ::fstatat(parent.get(), part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
  if (is_link)
    throw_invalid("output_dir " + in_quotes(whole.string()) + ": " + in_quotes(part.string()) + " is a symbolic link");
  refuse(ErrorCode::kFailedPrecondition);
  return folder;
}

}  // namespace

TraceFolder::TraceFolder(fs::path root) : root_(fs::absolute(root).lexically_normal()) {}

void TraceFolder::require_root() const {
  std::error_code error;
  fs::create_directories(root_, error);
  if (!error && ::access(root_.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error)
    throw Error(ErrorCode::kFailedPrecondition,
                "--trace-dir " + in_quotes(root_.string()) + ": no captures can be written there: " + error.message());
}

fs::path TraceFolder::relative(const fs::path& asked) const {
  const std::string text = asked.string();
  const auto refuse = [&](const std::string& why) {
    throw_invalid("output_dir is " + in_quotes(text) + ", " + why + "; allowed: a folder below " + root_.string() +
                  " (--trace-dir)");
  };
  if (text.size() > kMaxPathBytes) refuse("too long");
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; })) refuse("not printable");
  if (std::find(asked.begin(), asked.end(), "..") != asked.end()) refuse("with ..");
  fs::path path = asked.lexically_normal();
  if (path.is_absolute()) {
    // The root by the name it was given, or by its real one.
    std::error_code code;
    const fs::path real_root = fs::weakly_canonical(root_, code);
    const auto is_below = [&](const fs::path& root) { return *path.lexically_relative(root).begin() != ".."; };
    if (!is_below(root_) && (code || !is_below(real_root))) refuse("elsewhere");
    path = path.lexically_relative(is_below(root_) ? root_ : real_root);
  }
  if (path.empty() || path == ".") refuse("the folder of all captures itself");
  if (std::distance(path.begin(), path.end()) > kMaxParts) refuse("too deep");
  return path;
}

fs::path TraceFolder::claim(const fs::path& asked) const {
  const fs::path inside = relative(asked);
  std::error_code code;
  fs::create_directories(root_, code);
  FileDescriptor folder(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0)
    throw Error(ErrorCode::kFailedPrecondition, "--trace-dir " + root_.string() + " cannot be opened: " + std::strerror(errno));
  fs::path path = root_;
  for (const fs::path& part : inside) {
    if (part.empty()) continue;  // behind a last '/'
    folder = enter(folder, part, asked);
    path /= part;
  }
  // A link inside would lead what is written out again.
  if (const std::optional<fs::path> link = find_link_in(path))
    throw_invalid("output_dir holds a symbolic link, " + in_quotes(link->string()));
  prepare_capture_folder(path);
  return path;
}

}  // namespace ferry
