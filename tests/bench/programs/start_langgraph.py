"""LangGraph gets ready for one node with a SQLite checkpointer and ends, without any request."""

from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    """What is kept."""

    text: str


graph = StateGraph(State)
graph.add_node("ask", lambda state: state)
graph.add_edge(START, "ask")
graph.add_edge("ask", END)
with SqliteSaver.from_conn_string("langgraph.sqlite") as saver:
    graph.compile(checkpointer=saver)
