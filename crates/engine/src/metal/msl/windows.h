// How windows move over an image.
#include "host/ConvWindows.h"

