#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/gloo/gloo_group.h"
#include "comm/group.h"

namespace gloo::transport {
class Context;
}

namespace ferry {

/// TCP connections from this rank to each of `peers`, who must name this rank among theirs. Collective over `bootstrap`, also
/// for a rank without peers. Errors as for make_gloo_group. The connections have TCP keepalive on: a host that vanishes without
/// closing them (power or cable) is given up after about 5 s.
std::shared_ptr<gloo::transport::Context> connect_mesh(Group& bootstrap, std::span<const Rank> peers,
                                                       const GlooOptions& options);

/// gloo's message without the place in gloo's source that it begins with.
std::string gloo_error_text(const std::exception& error);

}  // namespace ferry
