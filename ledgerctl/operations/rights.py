"""Whether this user may do what a command is about to do, asked before anything is done."""

from ledgerctl.domain.roles import WRITES
from ledgerctl.errors import NotPermitted, UnexpectedReply
from ledgerctl.stores.connections import Stores


def require(stores: Stores, command: str) -> None:
    """Raise NotPermitted, naming each missing right, before a changing command changes anything.

    Without it a standalone server would let the flag be set and refuse the row. A server that
    asks for no user, or does not tell rights, is taken at its word when it refuses.
    """
    needed = WRITES.get(command, {})
    try:
        login = stores.deployment.login()
    except UnexpectedReply:  # a server that is not quite MongoDB
        return
    if not login.users:
        return
    names = {collection: stores.mongo.collection(collection).name for collection in needed}
    lacking = [
        f"{action} on {login.database}.{names[collection]}"
        for collection, actions in needed.items()
        for action in sorted(actions)
        if not login.allows(names[collection], action)
    ]
    if lacking:
        raise NotPermitted(
            f"{', '.join(login.users)} may not run `{command}`: the right to {', '.join(lacking)}"
            " is missing; nothing was changed",
            hint="`ledgerctl db roles` prints the rights that each role needs",
        )
