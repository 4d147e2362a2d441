#include "lockstep/data/datastores/digit_strokes.h"

#include <array>

namespace lockstep::detail {
namespace {

using P = StrokePoint;
constexpr auto corner = P::corner;
constexpr auto end = P::end;

// 0: oval from the top, closed with an overlap; narrow; slightly open; round.
constexpr P zero_oval[] = {{38, 1},  {18, 10}, {5, 34},  {3, 60},  {12, 88}, {30, 99},
                           {49, 90}, {60, 66}, {61, 38}, {53, 12}, {37, 1},  {24, 6, end}};
constexpr P zero_narrow[] = {{36, 0},  {22, 12}, {14, 38}, {13, 66}, {21, 92},    {33, 100},
                             {45, 91}, {52, 64}, {52, 34}, {46, 9},  {35, 0, end}};
constexpr P zero_open[] = {{30, 4},  {14, 18}, {4, 44},  {6, 76}, {22, 98},     {44, 95},
                           {59, 72}, {62, 40}, {53, 13}, {38, 5}, {33, 12, end}};
constexpr P zero_round[] = {{32, 8},  {12, 18}, {1, 42},  {2, 68},  {17, 90}, {36, 93},
                            {56, 82}, {65, 58}, {61, 30}, {46, 12}, {29, 9},  {18, 16, end}};

// 1: plain stroke; with a flag; with a flag and a foot; slightly bent.
constexpr P one_plain[] = {{33, 0}, {32, 34}, {31, 67}, {30, 100, end}};
constexpr P one_flag[] = {{13, 25}, {25, 14}, {36, 0, corner}, {36, 50}, {35, 100, end}};
constexpr P one_foot[] = {{15, 22},      {26, 12}, {35, 0, corner}, {34, 50},
                          {34, 98, end}, {14, 99}, {34, 98},        {54, 97, end}};
constexpr P one_bent[] = {{38, 0}, {32, 28}, {28, 60}, {29, 100, end}};

// 2: swan's neck with a straight base; with a loop at the foot; angular; with a flat curl.
constexpr P two_swan[] = {{5, 24},  {12, 7},  {31, 0},         {51, 8},  {55, 28},
                          {44, 52}, {24, 76}, {4, 97, corner}, {34, 96}, {62, 94, end}};
constexpr P two_loop[] = {{7, 21}, {18, 4}, {38, 1},  {53, 14}, {51, 36}, {37, 62},     {20, 86},
                          {7, 95}, {4, 84}, {15, 78}, {31, 88}, {47, 97}, {63, 91, end}};
constexpr P two_angular[] = {{6, 12},  {24, 2},         {46, 4},  {54, 21},     {43, 46},
                             {22, 74}, {2, 98, corner}, {31, 98}, {58, 99, end}};
constexpr P two_curl[] = {{13, 30}, {8, 16},  {20, 2},         {42, 1},  {56, 16}, {52, 38},
                          {35, 62}, {17, 82}, {4, 95, corner}, {22, 91}, {40, 96}, {62, 98, end}};

// 3: two bowls; with a deep notch; with a flat top and a corner; with a small loop in the middle.
constexpr P three_bowls[] = {{8, 13},  {24, 1},  {44, 3},  {53, 20},  {44, 38},    {24, 46, corner},
                             {46, 52}, {58, 70}, {50, 91}, {28, 100}, {5, 90, end}};
constexpr P three_deep[] = {{10, 9},  {30, 0},  {51, 10}, {48, 31}, {19, 48, corner},
                            {48, 51}, {59, 73}, {44, 96}, {20, 99}, {4, 87, end}};
constexpr P three_flat[] = {{8, 3},   {32, 2},  {56, 1, corner}, {42, 20}, {27, 39, corner},
                            {48, 45}, {58, 67}, {50, 90},        {28, 99}, {5, 91, end}};
constexpr P three_loop[] = {{8, 15},  {22, 2},  {43, 2},  {54, 17},    {45, 36},
                            {28, 46}, {24, 51}, {29, 53}, {37, 47},    {52, 56},
                            {58, 75}, {45, 96}, {23, 99}, {4, 85, end}};

// 4: open; open with a slanted arm; closed; closed in one stroke; with a round arm.
constexpr P four_open[] = {{14, 2},       {10, 30}, {5, 58, corner}, {34, 58},
                           {64, 55, end}, {48, 8},  {46, 54},        {43, 100, end}};
constexpr P four_slanted[] = {{24, 0},       {15, 30}, {2, 62, corner}, {32, 65},
                              {62, 64, end}, {47, 34}, {45, 66},        {43, 100, end}};
constexpr P four_closed[] = {{45, 0},       {23, 34}, {1, 69, corner}, {33, 70},
                             {65, 69, end}, {46, 0},  {46, 50},        {45, 100, end}};
constexpr P four_one_stroke[] = {{46, 100},       {47, 50}, {48, 1, corner}, {26, 33},
                                 {3, 66, corner}, {34, 66}, {64, 63, end}};
constexpr P four_round[] = {{8, 3},        {6, 26}, {11, 46}, {29, 52},      {48, 42},
                            {55, 24, end}, {57, 1}, {53, 50}, {48, 100, end}};

// 5: belly with a separate bar; in one stroke; nearly an S; with an angular shoulder.
constexpr P five_bar[] = {{14, 3},  {12, 22},  {9, 43, corner}, {28, 38}, {50, 48}, {57, 69},
                          {46, 92}, {24, 100}, {3, 91, end},    {14, 3},  {35, 3},  {58, 0, end}};
constexpr P five_one_stroke[] = {{57, 1},          {36, 3},  {16, 4, corner}, {13, 24},
                                 {10, 44, corner}, {31, 39}, {52, 50},        {56, 73},
                                 {42, 95},         {20, 99}, {3, 89, end}};
constexpr P five_like_s[] = {{56, 4},  {35, 3},  {17, 11}, {11, 31},  {21, 44},
                             {43, 52}, {55, 69}, {47, 91}, {25, 100}, {4, 91, end}};
constexpr P five_shoulder[] = {{11, 5},  {10, 25}, {8, 46, corner}, {38, 44},
                               {56, 58}, {54, 82}, {34, 99},        {4, 98, end},
                               {8, 6},   {30, 5},  {52, 6, end}};

// 6: curved back; steep back; wide belly; nearly straight back.
constexpr P six_curved[] = {{50, 3},  {28, 13}, {10, 40}, {5, 72},  {19, 97},
                            {42, 96}, {56, 76}, {48, 55}, {28, 52}, {8, 68, end}};
constexpr P six_steep[] = {{38, 0},  {23, 22}, {12, 52}, {11, 80}, {25, 99},
                           {43, 93}, {51, 75}, {42, 58}, {27, 58}, {13, 74, end}};
constexpr P six_wide[] = {{43, 2},  {20, 16}, {6, 44},  {3, 74},  {18, 98},    {44, 98},
                          {61, 80}, {56, 59}, {35, 49}, {14, 57}, {4, 71, end}};
constexpr P six_straight[] = {{47, 1},  {29, 28}, {12, 57}, {7, 80},  {22, 99},
                              {43, 95}, {53, 76}, {43, 59}, {25, 61}, {9, 76, end}};

// 7: plain; with a bar through the stem; with a serif; with a serif and a bar; with a curved stem.
constexpr P seven_plain[] = {{4, 5}, {31, 4}, {60, 2, corner}, {43, 48}, {25, 100, end}};
constexpr P seven_bar[] = {{3, 6},         {30, 5},  {59, 3, corner}, {43, 49},
                           {27, 100, end}, {18, 52}, {36, 50},        {57, 48, end}};
constexpr P seven_serif[] = {{4, 20},         {5, 5, corner}, {31, 4},
                             {58, 3, corner}, {39, 48},       {27, 100, end}};
constexpr P seven_serif_bar[] = {{5, 18},         {4, 5, corner}, {32, 6},
                                 {60, 4, corner}, {44, 46},       {25, 100, end},
                                 {16, 56},        {34, 53},       {54, 51, end}};
constexpr P seven_curved[] = {{3, 12},  {20, 4},  {40, 7},       {59, 3, corner},
                              {39, 34}, {29, 66}, {28, 100, end}};

// 8: in one stroke that crosses in the middle, from the top right or from the middle; two rings;
// slender.
constexpr P eight_cross[] = {{52, 12}, {34, 0},  {14, 8},      {12, 28}, {31, 46},
                             {52, 63}, {55, 85}, {34, 100},    {10, 90}, {10, 67},
                             {32, 47}, {51, 29}, {51, 11, end}};
constexpr P eight_middle[] = {{31, 46}, {13, 31}, {14, 9},      {33, 0}, {50, 9},
                              {50, 29}, {31, 47}, {11, 63},     {7, 84}, {29, 100},
                              {53, 88}, {51, 65}, {31, 46, end}};
constexpr P eight_rings[] = {{31, 0},  {15, 8},      {12, 25}, {22, 42},     {40, 42}, {51, 27},
                             {48, 8},  {31, 0, end}, {31, 44}, {11, 55},     {5, 76},  {18, 97},
                             {42, 97}, {57, 78},     {51, 56}, {31, 44, end}};
constexpr P eight_slender[] = {{50, 6},  {37, 0},  {22, 9},     {21, 27}, {33, 45},
                               {46, 66}, {45, 90}, {29, 100},   {14, 88}, {17, 67},
                               {33, 46}, {47, 28}, {51, 8, end}};

// 9: ring and straight stem; ring and curved tail; open ring; bent stem.
constexpr P nine_straight[] = {{54, 13}, {36, 0},  {14, 9},          {7, 31},  {20, 49},
                               {40, 45}, {54, 24}, {55, 10, corner}, {53, 55}, {50, 100, end}};
constexpr P nine_tail[] = {{53, 18}, {38, 1},          {16, 7},  {6, 29},  {17, 48}, {38, 46},
                           {53, 28}, {55, 15, corner}, {57, 48}, {49, 82}, {29, 99}, {8, 91, end}};
constexpr P nine_open[] = {{46, 6},  {24, 3},         {8, 20},  {12, 42},      {31, 47},
                           {50, 33}, {56, 7, corner}, {52, 52}, {43, 100, end}};
constexpr P nine_bent[] = {{52, 22}, {46, 4},  {25, 1},  {9, 17},  {13, 41},      {33, 47},
                           {50, 32}, {53, 16}, {50, 45}, {40, 75}, {25, 100, end}};

constexpr DigitVariant zero[] = {{4, zero_oval}, {3, zero_narrow}, {2, zero_open}, {3, zero_round}};
constexpr DigitVariant one[] = {{5, one_plain}, {4, one_flag}, {2, one_foot}, {2, one_bent}};
constexpr DigitVariant two[] = {{4, two_swan}, {3, two_loop}, {3, two_angular}, {2, two_curl}};
constexpr DigitVariant three[] = {
    {4, three_bowls}, {3, three_deep}, {2, three_flat}, {2, three_loop}};
constexpr DigitVariant four[] = {
    {4, four_open}, {3, four_slanted}, {3, four_closed}, {2, four_one_stroke}, {2, four_round}};
constexpr DigitVariant five[] = {
    {4, five_bar}, {3, five_one_stroke}, {2, five_like_s}, {2, five_shoulder}};
constexpr DigitVariant six[] = {{4, six_curved}, {3, six_steep}, {3, six_wide}, {2, six_straight}};
constexpr DigitVariant seven[] = {
    {4, seven_plain}, {3, seven_bar}, {2, seven_serif}, {2, seven_serif_bar}, {2, seven_curved}};
constexpr DigitVariant eight[] = {
    {4, eight_cross}, {3, eight_middle}, {2, eight_rings}, {2, eight_slender}};
constexpr DigitVariant nine[] = {
    {4, nine_straight}, {3, nine_tail}, {2, nine_open}, {3, nine_bent}};

constexpr std::array<std::span<const DigitVariant>, 10> all = {zero, one, two,   three, four,
                                                               five, six, seven, eight, nine};

}  // namespace

std::span<const DigitVariant> digit_variants(int digit) { return all[static_cast<size_t>(digit)]; }

}  // namespace lockstep::detail
