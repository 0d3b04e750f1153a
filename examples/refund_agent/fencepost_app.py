"""The agent on Fencepost: `celery -A examples.refund_agent.fencepost_app worker`.

Beside the environment of both apps it reads Fencepost's own, such as `FENCEPOST_DATABASE_URL`.
"""

from __future__ import annotations

from celery import Celery

import fencepost
from examples.refund_agent import environment, model
from examples.refund_agent.refunds import REFUNDS
from examples.refund_agent.shop import Complaint, Order, OrderQuery, conversation
from fencepost import TaskContext, step
from fencepost.agents import AgentResult, Tools, model_step, run_agent

app = Celery("refund-agent", broker=environment.broker(), set_as_current=False)
app.conf.broker_transport_options = environment.broker_options()


@step
def look_up_order(query: OrderQuery) -> Order:
    """What the shop knows about an order."""
    return environment.orders().find(query.order_id)


TOOLS = {provider: Tools(look_up_order, refund) for provider, refund in REFUNDS.items()}
client = model.connect()
ASK = {
    provider: model_step(client, model=model.name(), tools=tools, temperature=model.TEMPERATURE)
    for provider, tools in TOOLS.items()
}


@fencepost.task(effects=tuple(REFUNDS.values()))
def handle_complaint(ctx: TaskContext, complaint: Complaint) -> AgentResult:
    """Let the agent decide, and make what it decides happen once."""
    ask, tools = ASK[complaint.provider], TOOLS[complaint.provider]
    return run_agent(ctx, ask, tools, conversation(complaint))


fp = fencepost.install(app, sagas=[handle_complaint])
