#!/bin/sh
# pod-label.sh leader|standby: labels the pod that it runs in with role=leader or role=standby, so that a Service with that selector leads to the leader.
#
#   incumbent sidecar billing --on kubernetes: --no-drain --on-elected '/hooks/pod-label.sh leader' --on-lost '/hooks/pod-label.sh standby'
#
# Needs curl, the pod's own name and namespace in POD_NAME and POD_NAMESPACE (downward API), and a service account that may `patch` pods.
# A label is no fence: it says where to send requests, and a pod that was cut off keeps its label. What is written must carry the token.
set -eu
role=$1
account=${SERVICE_ACCOUNT:-/var/run/secrets/kubernetes.io/serviceaccount}
api=${KUBERNETES_API:-https://kubernetes.default.svc}

curl --silent --show-error --fail --max-time 10 --output /dev/null --cacert "$account/ca.crt" \
    --request PATCH "$api/api/v1/namespaces/$POD_NAMESPACE/pods/$POD_NAME" \
    --header "Authorization: Bearer $(cat "$account/token")" \
    --header "Content-Type: application/merge-patch+json" \
    --data "{\"metadata\":{\"labels\":{\"role\":\"$role\"}}}"
