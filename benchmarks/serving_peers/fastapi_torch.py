"""FastAPI and torch, as they are usually written: one request at a time, on all cores. Arguments: CLASSIFIER PORT [threads]."""

import sys

import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from network import Network

app = FastAPI()
network = Network(sys.argv[1])
in_threads = sys.argv[3:] == ["threads"]


def predict(content: bytes) -> dict[str, object]:
    return network.described(network.probabilities(network.prepare(content)[None])[0])


@app.post("/predict")
async def answer(request: Request) -> dict[str, object]:
    content = await request.body()
    return await run_in_threadpool(predict, content) if in_threads else predict(content)


uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
