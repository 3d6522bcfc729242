#pragma once

// Most tests include these headers, which are parsed once for all of them. No test relies on this file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/precompiled.h"
