"""The policies of the API server for Ebb's own accounts, and how they deny a write."""

import re
from typing import Final

WRITE_POLICIES: Final = (
    "ebb-controller-nodes",
    "ebb-controller-pods",
    "ebb-webhook-registration",
)
"""The ValidatingAdmissionPolicies for Ebb's own accounts, as in manifests/.

The last one is for the webhook."""

DENIAL: Final = re.compile(
    f"ValidatingAdmissionPolicy '({'|'.join(WRITE_POLICIES)})' with binding '[^']*' "
    "denied request: (.*)",
    re.DOTALL,
)
"""Part of the API server's message if one of WRITE_POLICIES denies an object.

Source: the API server's package admission/plugin/policy/validating."""
