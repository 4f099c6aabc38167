from .base import Dataset as Dataset, register as register
from .cache import fetch as fetch, home as home, is_offline as is_offline
from .checks import check as check
from .convokit import read_convokit as read_convokit, read_convokit_utterances as read_convokit_utterances
from .dialogues import read_dialogue_file as read_dialogue_file
from .dl_hard import automatic_hard as automatic_hard
from .formats import (
    field as field,
    iter_jsonl as iter_jsonl,
    iter_lines as iter_lines,
    iter_tsv as iter_tsv,
    open_data as open_data,
    read_json as read_json,
    read_qrels as read_qrels,
    read_records as read_records,
    read_run as read_run,
)
from .forum import read_forum as read_forum
from .instances import instance_task as instance_task
from .json_stream import iter_json_items as iter_json_items
from .leaks import check_leaks as check_leaks, find_leaks as find_leaks, without_leaks as without_leaks
from .noesis import read_noesis as read_noesis
from .provider import Provider as Provider
from .registry import dataset as dataset, names as names
from .response_tsv import read_response_tsv as read_response_tsv
from .source import File as File, Source as Source
