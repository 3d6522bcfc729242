#pragma once

// What most tests include, parsed once for all of them. No test relies on it: each one includes what it needs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/precompiled.h"
