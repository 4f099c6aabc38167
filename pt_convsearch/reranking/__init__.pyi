from .cross_encoder import CrossEncoder as CrossEncoder
from .drop_seen import DropSeen as DropSeen
from .duo_t5 import DuoT5 as DuoT5
from .fusion import interpolate as interpolate, rrf as rrf
from .mono_t5 import MonoT5 as MonoT5
from .parade import PARADE as PARADE
from .passages import (
    AggregatePassages as AggregatePassages,
    SlidingWindow as SlidingWindow,
    first_p as first_p,
    max_p as max_p,
    sum_p as sum_p,
)
from .speakers import Speakers as Speakers
from .systems import PUBLISHED_MODELS as PUBLISHED_MODELS, baselines as baselines
