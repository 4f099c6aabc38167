from .cluster import connect as connect
from .encoding import encode as encode
from .parallel import OnRay as OnRay, on_ray as on_ray
from .planning import Plan as Plan, plan as plan
from .recall import recall_of as recall_of
from .sharded import ShardedIndex as ShardedIndex
from .sharded_bm25 import ShardedBM25Index as ShardedBM25Index
from .sharded_dense import ShardedDenseIndex as ShardedDenseIndex
from .training import train as train
