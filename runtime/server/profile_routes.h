#pragma once

namespace ferry {

class HttpRouter;
class ProfileControl;

/// What people do with curl:
///
///   POST /start_profile   body empty, or a JSON object with output_dir, start_step, num_steps, level, max_bytes, routing
///   POST /stop_profile    body empty, or {"wait": true}
///
/// Answers are {"output_dir": …}, or {"error": …} with 400 (a bad field), 409 (not now), 503. `control` must outlive the
/// server.
void add_profile_routes(HttpRouter& router, ProfileControl& control);

}  // namespace ferry
