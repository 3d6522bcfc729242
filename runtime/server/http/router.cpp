#include "runtime/server/http/router.h"

#include <utility>

namespace ferry {

void HttpRouter::add(const std::string& method, const std::string& path, HttpRoute route) {
  routes_[path][method] = std::move(route);
}

const HttpRoute* HttpRouter::find(std::string_view method, std::string_view path) const {
  const auto at_path = routes_.find(path);
  if (at_path == routes_.end()) return nullptr;
  const auto route = at_path->second.find(method == "HEAD" ? "GET" : method);
  return route == at_path->second.end() ? nullptr : &route->second;
}

std::string HttpRouter::methods(std::string_view path) const {
  std::string text;
  const auto at_path = routes_.find(path);
  if (at_path == routes_.end()) return text;
  for (const auto& [method, route] : at_path->second)
    text += (text.empty() ? "" : ", ") + method + (method == "GET" ? ", HEAD" : "");
  return text;
}

}  // namespace ferry
