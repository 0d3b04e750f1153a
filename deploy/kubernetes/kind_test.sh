#!/usr/bin/env bash
# On a cluster that kubectl reaches and that has the image fencepost-factory: two worker pods, one of
# them deleted the hard way inside a step, a release that a Job follows to its end, verification.
# The workflow runs it on kind. Needs kubectl alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

FAULTS=/var/lib/fencepost/faults
k() { kubectl --namespace fencepost "$@"; }
in_worker() { k exec deployment/worker -- "$@"; }
sql() {
  k exec deployment/postgres -- psql --host=127.0.0.1 --username=fencepost --dbname=fencepost \
    --no-psqlrc --tuples-only --no-align --command="$1"
}
fail() {
  printf 'kind_test: %s\n' "$*" >&2
  k get all >&2 || true
  k logs --selector app.kubernetes.io/part-of=fencepost --all-containers --tail=50 >&2 || true
  exit 1
}
# until_true SECONDS WHAT COMMAND...
until_true() {
  local seconds=$1 what=$2 began=$SECONDS
  shift 2
  until "$@"; do
    [ $((SECONDS - began)) -lt "$seconds" ] || fail "$what did not happen within $seconds s"
    sleep 1
  done
}

# Everything but the release itself, whose Job starts only once the trap is set.
kubectl kustomize overlays/kind |
  kubectl apply --selector 'app.kubernetes.io/name!=coordinator' --filename -
k rollout status deployment/postgres --timeout=180s
k rollout status deployment/redis --timeout=180s
k wait job/migrate --for=condition=complete --timeout=180s || fail "no migration"
k rollout status deployment/worker --timeout=300s || fail "no workers"

# Whoever comes to this point of the second attempt waits there.
plan='{"point": "stage.archive-written", "action": "pause", "times": 1, "fired": 0,
  "match": {"module": "payment-engine", "attempt": "2"}}'
in_worker sh -c "mkdir -p $FAULTS && printf '%s' '$plan' >$FAULTS/plan.partial &&
  mv $FAULTS/plan.partial $FAULTS/plan.json"
kubectl kustomize overlays/kind |
  kubectl apply --selector 'app.kubernetes.io/name=coordinator' --filename -
until_true 180 "the step" in_worker test -e "$FAULTS/plan.fired-1"

owner=$(sql "SELECT owner FROM fencepost_executions WHERE owner IS NOT NULL AND saga = 'module'
  AND input::jsonb -> 'module' ->> 'name' = 'payment-engine'
  AND (input::jsonb ->> 'attempt')::int = 2")
pod=${owner#worker@}
pod=${pod%%:*}
printf 'kind_test: deleting %s, which has payment-engine in hand\n' "$pod"
k delete pod "$pod" --force --grace-period=0

k wait job/coordinator --for=condition=complete --timeout=300s || fail "the release is not promoted"
k logs job/coordinator
taken=$(sql "SELECT count(*) FROM fencepost_events WHERE name = 'execution.recovered'
  AND details::jsonb ->> 'from_owner' = '$owner'")
[ "$taken" -ge 1 ] || fail "nobody took over from $owner"

k rollout status deployment/worker --timeout=300s || fail "the second worker is not replaced"
run=$(sql "SELECT execution_id FROM fencepost_executions WHERE saga = 'release'
  ORDER BY created_at LIMIT 1")
in_worker python -m coordinator verify "$run" --settle 90 || fail "an invariant is broken"
printf 'kind_test: promoted, taken over from %s, and verified\n' "$pod"
