#include "runtime/server/http/router.h"

#include <utility>

namespace ferry {

void HttpRouter::add(const std::string& method, const std::string& path, HttpRoute route) {
  route.path = path;
  routes_[path][method] = std::move(route);
}

const HttpRouter::Methods* HttpRouter::at(std::string_view path) const {
  auto found = routes_.find(path);
  const std::size_t last = path.rfind('/') + 1;  // 0 where there is none
  if (found == routes_.end() && last > 0 && last < path.size()) found = routes_.find(std::string(path.substr(0, last)) + "*");
  for (std::string_view above = path; found == routes_.end() && above.find('/') != std::string_view::npos;) {
    above = above.substr(0, above.rfind('/'));
    if (above.size() + 1 < path.size()) found = routes_.find(std::string(above) + "/**");
  }
  return found == routes_.end() ? nullptr : &found->second;
}

const HttpRoute* HttpRouter::find(std::string_view method, std::string_view path) const {
  const Methods* const at_path = at(path);
  if (at_path == nullptr) return nullptr;
  const auto route = at_path->find(method == "HEAD" ? "GET" : method);
  return route == at_path->end() ? nullptr : &route->second;
}

std::string HttpRouter::methods(std::string_view path) const {
  std::string text;
  const Methods* const at_path = at(path);
  if (at_path == nullptr) return text;
  for (const auto& [method, route] : *at_path) text += (text.empty() ? "" : ", ") + method + (method == "GET" ? ", HEAD" : "");
  return text;
}

}  // namespace ferry
