#include "launch/media_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

/// One byte more than may be read is enough for the reader to refuse the file. Pipes are refused: they may never begin or end.
std::vector<std::byte> read_file(const fs::path& path, int64_t max_bytes) {
  std::error_code why_not;
  std::ifstream file;
  if (fs::is_regular_file(path, why_not)) file.open(path, std::ios::binary);
  if (!file.is_open()) throw Error(ErrorCode::kNotFound, in_quotes(path.string()) + " cannot be read; allowed: a picture file");
  std::vector<std::byte> bytes;
  constexpr int64_t kPiece = int64_t{1} << 20;
  while (file && std::ssize(bytes) <= max_bytes) {
    const std::size_t old_size = bytes.size();
    bytes.resize(old_size + static_cast<std::size_t>(std::min(kPiece, max_bytes + 1 - std::ssize(bytes))));
    file.read(reinterpret_cast<char*>(bytes.data() + old_size), static_cast<std::streamsize>(bytes.size() - old_size));
    bytes.resize(old_size + static_cast<std::size_t>(file.gcount()));
  }
  return bytes;
}

/// The files of a folder by name; hidden ones are none of the video.
std::vector<fs::path> frames_in(const fs::path& folder) {
  std::vector<fs::path> frames;
  std::error_code why_not;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, why_not)) {
    if (entry.is_regular_file(why_not) && !entry.path().filename().string().starts_with('.')) frames.push_back(entry.path());
  }
  if (frames.empty())
    throw_invalid("--video " + in_quotes(folder.string()) + " holds no files; allowed: a folder with the frames of a video");
  std::ranges::sort(frames);
  return frames;
}

/// Each folder is a video; single files are the frames of one more.
std::vector<std::vector<fs::path>> list_videos(const std::vector<std::string>& paths) {
  std::vector<std::vector<fs::path>> videos;
  std::vector<fs::path> single;
  for (const fs::path path : paths) {
    std::error_code why_not;
    if (fs::is_directory(path, why_not)) {
      videos.push_back(frames_in(path));
    } else {
      single.push_back(path);
    }
  }
  if (!single.empty()) videos.push_back(std::move(single));
  return videos;
}

std::shared_ptr<const Medium> read_video(const std::vector<fs::path>& paths, std::optional<double> fps,
                                         const MediaIntake& intake, const std::string& name) {
  std::vector<std::byte> bytes;
  const VideoFiles video{.num_frames = std::ssize(paths),
                         .frame = [&](int64_t i) -> std::span<const std::byte> {
                           return bytes =
                                      read_file(paths[static_cast<std::size_t>(i)], intake.reader().limits().picture.max_bytes);
                         },
                         .fps = fps};
  return intake.read_video(video, name);
}

}  // namespace

std::vector<std::shared_ptr<const Medium>> read_media_files(const GenerateOptions& options, const MediaIntake& intake) {
  std::vector<std::shared_ptr<const Medium>> media;
  for (const std::string& path : options.images)
    media.push_back(intake.read_picture(read_file(path, intake.reader().limits().picture.max_bytes), "--image " + path));
  for (const std::vector<fs::path>& paths : list_videos(options.videos))
    media.push_back(read_video(paths, options.fps, intake, "--video " + paths.front().string()));
  return media;
}

}  // namespace ferry
