#include "launch/media_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAllowedPictures = "a picture file";
constexpr const char* kAllowedVideos = "folders with the frames of a video, or its frames one by one, each a picture file";

/// The files of one video, and what messages call it.
struct VideoPaths {
  std::string name;
  std::vector<fs::path> frames;
  bool is_folder = false;
};

/// `option` and `allowed` are what the command line says and may say.
[[noreturn]] void refuse_file(const std::string& option, const fs::path& path, const std::string& why,
                              const std::string& allowed) {
  throw Error(ErrorCode::kNotFound,
              option + ": " + in_quotes(path.string()) + " cannot be read (" + why + "); allowed: " + allowed);
}

std::string why_not(int error) { return std::generic_category().message(error); }

/// Opens files only. Pipes and devices may never begin or end: no writer is waited for, and what was opened is looked at.
FileDescriptor open_file(const fs::path& path, const std::string& option, const std::string& allowed) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) refuse_file(option, path, why_not(errno), allowed);
  if (S_ISDIR(status.st_mode)) refuse_file(option, path, "it is a folder", allowed);
  if (!S_ISREG(status.st_mode)) refuse_file(option, path, "it is no file", allowed);
  return file;
}

/// One byte more than may be read is enough for the reader to refuse the file.
std::vector<std::byte> read_file(const fs::path& path, int64_t max_bytes, const std::string& option,
                                 const std::string& allowed) {
  const FileDescriptor file = open_file(path, option, allowed);
  std::vector<std::byte> bytes;
  constexpr int64_t kPiece = int64_t{1} << 20;
  while (std::ssize(bytes) <= max_bytes) {
    const std::size_t old_size = bytes.size();
    bytes.resize(old_size + static_cast<std::size_t>(std::min(kPiece, max_bytes + 1 - std::ssize(bytes))));
    const ssize_t num_read = ::read(file.get(), bytes.data() + old_size, bytes.size() - old_size);
    bytes.resize(old_size + static_cast<std::size_t>(std::max<ssize_t>(num_read, 0)));
    if (num_read < 0 && errno != EINTR) refuse_file(option, path, why_not(errno), allowed);
    if (num_read == 0) break;
  }
  return bytes;
}

/// The files of a folder by name; hidden ones are none of the video.
std::vector<fs::path> frames_in(const fs::path& folder) {
  std::vector<fs::path> frames;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) refuse_file("--video", folder, error.message(), kAllowedVideos);
  for (const fs::directory_entry& entry : entries) {
    if (entry.is_regular_file(error) && !entry.path().filename().string().starts_with('.')) frames.push_back(entry.path());
  }
  if (frames.empty())
    throw_invalid("--video " + in_quotes(folder.string()) + " holds no files; allowed: a folder with the frames of a video");
  std::ranges::sort(frames);
  return frames;
}

/// Each folder is a video; single files are the frames of one more, behind them.
std::vector<VideoPaths> list_videos(const std::vector<std::string>& paths) {
  std::vector<VideoPaths> videos;
  VideoPaths single;
  for (const fs::path path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      videos.push_back({.name = "--video " + in_quotes(path.string()), .frames = frames_in(path), .is_folder = true});
    } else {
      if (single.frames.empty()) single.name = "--video " + in_quotes(path.string());
      single.frames.push_back(path);
    }
  }
  for (const fs::path& path : single.frames) open_file(path, "--video", kAllowedVideos);
  if (single.frames.size() == 1) throw_invalid(single.name + " is a single file; allowed: " + kAllowedVideos + ", two or more");
  if (!single.frames.empty()) single.name += " and " + std::to_string(single.frames.size() - 1) + " more";
  if (!single.frames.empty()) videos.push_back(std::move(single));
  return videos;
}

/// The name of a frame's own file, which a long name of its folder does not cut off.
std::string name_of_frame(const VideoPaths& video, const fs::path& path) {
  return video.is_folder ? video.name + ", " + in_quotes(path.filename().string()) : "--video " + in_quotes(path.string());
}

std::shared_ptr<const Medium> read_video(const VideoPaths& paths, std::optional<double> fps, const MediaIntake& intake) {
  std::vector<std::byte> bytes;
  const auto path = [&](int64_t i) -> const fs::path& { return paths.frames[static_cast<std::size_t>(i)]; };
  const VideoFiles video{.num_frames = std::ssize(paths.frames),
                         .frame = [&](int64_t i) -> std::span<const std::byte> {
                           return bytes =
                                      read_file(path(i), intake.reader().limits().picture.max_bytes, "--video", kAllowedVideos);
                         },
                         .fps = fps,
                         .frame_name = [&](int64_t i) { return name_of_frame(paths, path(i)); }};
  return intake.read_video(video, paths.name);
}

}  // namespace

void check_media_files(const GenerateOptions& options) {
  for (const std::string& path : options.images) open_file(path, "--image", kAllowedPictures);
  for (const VideoPaths& video : list_videos(options.videos)) {
    for (const fs::path& frame : video.frames) open_file(frame, "--video", kAllowedVideos);
  }
}

std::vector<std::shared_ptr<const Medium>> read_media_files(const GenerateOptions& options, const MediaIntake& intake) {
  std::vector<std::shared_ptr<const Medium>> media;
  for (const std::string& path : options.images) {
    media.push_back(
        intake.read_picture(read_file(path, intake.reader().limits().picture.max_bytes, "--image", kAllowedPictures),
                            "--image " + in_quotes(path)));
  }
  for (const VideoPaths& paths : list_videos(options.videos)) media.push_back(read_video(paths, options.fps, intake));
  return media;
}

}  // namespace ferry
