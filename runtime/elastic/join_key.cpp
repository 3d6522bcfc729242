#include "runtime/elastic/join_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/random_id.h"
#include "runtime/base/text_file.h"
#include "runtime/net/host_port.h"
#include "runtime/net/hosts.h"

namespace ferry {
namespace {

constexpr std::size_t kLeastBytes = 16, kMostBytes = 4096;
constexpr const char* kSpace = " \t\r\n";
constexpr const char* kName = "join.key";

/// `text` without white space around it, if that is a key. `file`: where it was.
std::string key_in(const std::string& text, const std::filesystem::path& file) {
  const std::size_t first = text.find_first_not_of(kSpace);
  const std::string key = first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
  if (key.size() < kLeastBytes || key.size() > kMostBytes) {
    throw_invalid("the key in " + file.string() + " has " + std::to_string(key.size()) +
                  " bytes; allowed: " + std::to_string(kLeastBytes) + " to " + std::to_string(kMostBytes));
  }
  return key;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::kFailedPrecondition,
              "the user's own key: " + path.string() + " " + what + "; allowed: --join-key FILE in its place");
}

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  if (error == ELOOP) refuse(path, "is a link");
  refuse(path, std::string("cannot be used: ") + std::strerror(error));
}

/// Throws unless `file`, opened from `path`, is of the kind `type`, the user's, and closed to others.
void require_own(const FileDescriptor& file, mode_t type, const std::filesystem::path& path) {
  struct stat found {};
  if (fstat(file.get(), &found) != 0) fail(path, errno);
  if ((found.st_mode & S_IFMT) != type) refuse(path, type == S_IFDIR ? "is no folder" : "is no regular file");
  if (found.st_uid != geteuid()) refuse(path, "belongs to user " + std::to_string(found.st_uid));
  if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0) refuse(path, "is open to other users");
}

FileDescriptor open_folder(const std::filesystem::path& folder) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) fail(folder, errno);
  FileDescriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const int open_error = errno;
  std::error_code ignored;
  if (opened.get() < 0) fail(folder, std::filesystem::is_symlink(folder, ignored) ? ELOOP : open_error);
  require_own(opened, S_IFDIR, folder);
  return opened;
}

/// Nothing if there is none.
std::optional<std::string> read_key(const FileDescriptor& folder, const std::filesystem::path& path) {
  const FileDescriptor file(openat(folder.get(), kName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT) return std::nullopt;
  if (file.get() < 0) fail(path, errno);
  require_own(file, S_IFREG, path);
  std::array<char, 2 * kMostBytes> text{};
  const ssize_t num_bytes = read(file.get(), text.data(), text.size());
  if (num_bytes < 0) fail(path, errno);
  return key_in(std::string(text.data(), static_cast<std::size_t>(num_bytes)), path);
}

/// Writes it under another name first, so that a process which finds the file finds a whole key. One that another process has
/// made meanwhile stays.
void make_key(const FileDescriptor& folder, const std::filesystem::path& path) {
  const std::string name = std::string(kName) + "." + random_id();
  const std::string text = random_id() + random_id() + "\n";
  const FileDescriptor file(
      openat(folder.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() < 0) fail(path, errno);
  const bool is_written = write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int write_error = is_written ? 0 : errno;
  const bool is_made = is_written && linkat(folder.get(), name.c_str(), folder.get(), kName, 0) == 0;
  const int error = is_written ? errno : write_error;
  unlinkat(folder.get(), name.c_str(), 0);
  if (!is_made && error != EEXIST) fail(path, error);
}

bool names_this_host(const std::string& address) {
  return address.starts_with("unix:") || is_loopback_host(parse_host_port("join", address).host);
}

}  // namespace

std::string read_join_key(const std::filesystem::path& file) {
  if (file.empty()) return "";
  return key_in(read_text_file(file, 2 * kMostBytes), file);
}

std::string own_join_key(const std::filesystem::path& folder) {
  const FileDescriptor opened = open_folder(folder);
  const std::filesystem::path path = folder / kName;
  if (std::optional<std::string> key = read_key(opened, path)) return *key;
  make_key(opened, path);
  if (std::optional<std::string> key = read_key(opened, path)) return *key;
  refuse(path, "was removed while it was made");
}

std::string join_key_for(const std::string& address, const JoinKeySource& source) {
  if (!source.key_file.empty()) return read_join_key(source.key_file);
  return !source.own_folder.empty() && names_this_host(address) ? own_join_key(source.own_folder) : "";
}

}  // namespace ferry
