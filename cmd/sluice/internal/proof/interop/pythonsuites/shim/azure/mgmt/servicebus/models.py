class AccessRights:
    manage, send, listen = "Manage", "Send", "Listen"


class Properties:
    def __init__(self, **values):
        self.values = values


SBQueue = SBTopic = SBSubscription = SBAuthorizationRule = Properties
