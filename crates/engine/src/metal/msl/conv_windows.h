// Windows of a convolution over an image.
#include "host/ConvWindows.h"

