# What Lockstep is built on. cmake/lockstepConfig.cmake.in finds the same again for those who use an
# installed Lockstep; keep the two alike.

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(dnnl 2.6 CONFIG REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(WebP REQUIRED)
find_package(GIF 5 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CURL 7.86 REQUIRED)
find_package(fmt REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(muparser REQUIRED)
find_package(xxHash REQUIRED)
find_package(hwy 1.0 CONFIG REQUIRED)
find_package(cppzmq REQUIRED)
find_package(cereal REQUIRED)
find_package(Gloo 0.5 REQUIRED CONFIG)
find_package(SQLite3 3.35 REQUIRED)
find_package(CLI11 REQUIRED) # the command only

# Public: public headers include theirs.
set(lockstep_public_dependencies Threads::Threads nlohmann_json::nlohmann_json cereal::cereal)
set(lockstep_private_dependencies
    DNNL::dnnl
    OpenMP::OpenMP_CXX
    JPEG::JPEG
    PNG::PNG
    WebP::WebP
    GIF::GIF
    OpenSSL::Crypto
    CURL::libcurl
    fmt::fmt
    tomlplusplus::tomlplusplus
    muparser::muparser
    xxHash::xxhash
    hwy::hwy
    cppzmq
    gloo
    SQLite::SQLite3
    ${CMAKE_DL_LIBS})
