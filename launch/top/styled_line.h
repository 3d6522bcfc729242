#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry {

enum class Style { kPlain, kStrong, kFaint, kGood, kBad, kFirst, kSecond, kThird };

/// What a terminal can show.
struct Screen {
  int columns = 100;
  int rows = 0;             // 0: as many as there are
  bool has_colors = false;  // else no escape is written
  bool has_blocks = false;  // its characters are Unicode's
};

/// A line of a terminal, made of pieces. What does not fit is cut, so that no line is ever wider than the screen.
class StyledLine {
 public:
  /// `text` may be anybody's. Control characters and those that turn the direction of text are written as printable() writes
  /// them. What the locale cannot show becomes "?".
  void add(std::string_view text, Style style = Style::kPlain);
  /// Spaces up to `column`, if the line is not there yet.
  void pad(int column);
  /// Columns that it takes.
  int width() const;
  std::string render(const Screen& screen) const;

 private:
  struct Piece {
    std::string text;
    Style style;
  };
  std::vector<Piece> pieces_;
};

/// Columns that `text` takes on a terminal of this process's locale.
int display_width(std::string_view text);

}  // namespace ferry
