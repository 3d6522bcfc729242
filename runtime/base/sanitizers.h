#pragma once

// FERRY_ADDRESS_SANITIZER or FERRY_THREAD_SANITIZER is defined where the code is compiled with one: g++ and clang each have
// their own way of saying so.
#ifdef __clang__
#if __has_feature(address_sanitizer)
#define FERRY_ADDRESS_SANITIZER
#elif __has_feature(thread_sanitizer)
#define FERRY_THREAD_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define FERRY_ADDRESS_SANITIZER
#elif defined(__SANITIZE_THREAD__)
#define FERRY_THREAD_SANITIZER
#endif
