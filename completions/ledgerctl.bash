# Completion of ledgerctl for bash; written by `ledgerctl completion show bash`.

_ledgerctl_of() { # what a command takes: its options, those with a value, the kind of its words
  case $1 in
    'balance show') options='--at --known-at' plain='@account'
      values='--at=- --known-at=-' ;;
    'balance replay') options='--from --to' plain='@account'
      values='--from=- --to=-' ;;
    'balance list') options='--at --below --limit' plain='-'
      values='--at=- --below=- --limit=-' ;;
    'balance explain') options='--job --from --to --format --for' plain='@account'
      values='--job=@job --from=- --to=- --format=text,markdown,html,json --for=support,customer' ;;
    'balance grant') options='--key --dry-run --reason --yes --confirm' plain='@account'
      values='--key=- --reason=- --confirm=-' ;;
    'job show') options='' plain='@job'
      values='' ;;
    'job list') options='--account --state --since --until --limit' plain='-'
      values='--account=@account --state=charged,refunded,reclaimed,corrupt,bad_flags --since=- --until=- --limit=-' ;;
    'job charge') options='--account --cost --dry-run --reason --yes --confirm' plain='@job'
      values='--account=@account --cost=- --reason=- --confirm=-' ;;
    'job refund') options='--from-file --force --dry-run --reason --yes --confirm --expect' plain='@job'
      values='--from-file=@file --reason=- --confirm=- --expect=-' ;;
    'job reclaim') options='--from-file --dry-run --reason --yes --confirm --expect' plain='@job'
      values='--from-file=@file --reason=- --confirm=- --expect=-' ;;
    'dead list') options='--digest --all --group --error --account --state --verdict --failed-before --failed-after --requeued-under --plan --limit --tail' plain='@dead'
      values='--digest=- --group=@group --error=- --account=@account --state=charged,refunded,reclaimed,corrupt,bad_flags --verdict=unreadable,unknown_job,bad_flags,settled,queued,duplicate,retryable --failed-before=- --failed-after=- --requeued-under=- --plan=@file --limit=-' ;;
    'dead show') options='' plain='@dead'
      values='' ;;
    'dead stats') options='--digest --all --group --error --account --state --verdict --failed-before --failed-after --requeued-under --plan --top --fail-over --fail-age' plain='@dead'
      values='--digest=- --group=@group --error=- --account=@account --state=charged,refunded,reclaimed,corrupt,bad_flags --verdict=unreadable,unknown_job,bad_flags,settled,queued,duplicate,retryable --failed-before=- --failed-after=- --requeued-under=- --plan=@file --top=- --fail-over=- --fail-age=-' ;;
    'dead requeue') options='--digest --all --group --error --account --state --verdict --failed-before --failed-after --requeued-under --plan --limit --attempts --keep-attempts --delay --spread --force --ramp --wait --stop-over --in-flight --dry-run --reason --yes --confirm --expect' plain='@dead'
      values='--digest=- --group=@group --error=- --account=@account --state=charged,refunded,reclaimed,corrupt,bad_flags --verdict=unreadable,unknown_job,bad_flags,settled,queued,duplicate,retryable --failed-before=- --failed-after=- --requeued-under=- --plan=@file --limit=- --attempts=- --delay=- --spread=- --ramp=- --wait=- --stop-over=- --in-flight=- --reason=- --confirm=- --expect=-' ;;
    'dead release') options='--digest --all --group --error --account --state --verdict --failed-before --failed-after --requeued-under --plan --limit --dry-run --reason --yes --confirm --expect' plain='@dead'
      values='--digest=- --group=@group --error=- --account=@account --state=charged,refunded,reclaimed,corrupt,bad_flags --verdict=unreadable,unknown_job,bad_flags,settled,queued,duplicate,retryable --failed-before=- --failed-after=- --requeued-under=- --plan=@file --limit=- --reason=- --confirm=- --expect=-' ;;
    'dead restore') options='--last --from-archive --dry-run --reason --yes --confirm --expect' plain='@taken'
      values='--reason=- --confirm=- --expect=-' ;;
    'dead review') options='--digest --all --group --error --account --state --verdict --failed-before --failed-after --requeued-under --plan --limit --yes --confirm' plain='@dead'
      values='--digest=- --group=@group --error=- --account=@account --state=charged,refunded,reclaimed,corrupt,bad_flags --verdict=unreadable,unknown_job,bad_flags,settled,queued,duplicate,retryable --failed-before=- --failed-after=- --requeued-under=- --plan=@file --limit=- --confirm=-' ;;
    'queue stats') options='--watch' plain='-'
      values='--watch=-' ;;
    'queue list') options='--limit' plain='retry,dead-letter,processing'
      values='--limit=-' ;;
    'queue push') options='--error --attempts --dry-run --reason --yes --confirm' plain='@job'
      values='--error=- --attempts=- --reason=- --confirm=-' ;;
    'queue work') options='--exec --once --until-empty --watch --max-jobs --timeout --yes --confirm' plain='-'
      values='--exec=- --max-jobs=- --timeout=- --confirm=-' ;;
    'queue recover') options='--older-than --force --dry-run --reason --yes --confirm --expect' plain='-'
      values='--older-than=- --reason=- --confirm=- --expect=-' ;;
    'summary rebuild') options='--days --from --to --account --no-late --metrics-file --dry-run --reason --yes --confirm' plain='-'
      values='--days=- --from=- --to=- --account=@account --metrics-file=@file --reason=- --confirm=-' ;;
    'summary drift') options='--days --from --to --account --why' plain='-'
      values='--days=- --from=- --to=- --account=@account' ;;
    'summary show') options='--days --from --to' plain='@account'
      values='--days=- --from=- --to=-' ;;
    'inbox audit') options='--lookup' plain='-'
      values='--lookup=-' ;;
    'inbox stuck') options='--older-than --limit' plain='-'
      values='--older-than=- --limit=-' ;;
    'inbox list') options='--status --group --limit' plain='-'
      values='--status=claimed,succeeded,failed,dead --group=- --limit=-' ;;
    'inbox show') options='--group' plain='-'
      values='--group=-' ;;
    'inbox retry') options='--group --dry-run --reason --yes --confirm --expect' plain='-'
      values='--group=- --reason=- --confirm=- --expect=-' ;;
    'inbox settle') options='--group --dry-run --reason --yes --confirm --expect' plain='-'
      values='--group=- --reason=- --confirm=- --expect=-' ;;
    'inbox consume') options='--group --topic --exec --once --until-empty --full --timeout --claim-for --yes --confirm' plain='-'
      values='--group=- --topic=- --exec=- --timeout=- --claim-for=- --confirm=-' ;;
    'ledger audit') options='--account --job --since --code --older-than' plain='-'
      values='--account=@account --job=@job --since=- --code=missing_row,unflagged_row,duplicate_row,wrong_amount,wrong_sign,missing_charge,orphan_row,corrupt_flags,bad_flags,flags_missing,flag_time,bad_amount,bad_cost,cost_mismatch,undated_row,future_row,odd_recorded_at,mixed_id_types,missing_message,refunded_but_succeeded,stranded_charge --older-than=-' ;;
    'ledger repair') options='--job --code --grace --dry-run --reason --yes --confirm --expect' plain='-'
      values='--job=@job --code=missing_row,unflagged_row,duplicate_row,wrong_amount,wrong_sign,missing_charge,orphan_row,corrupt_flags,bad_flags,flags_missing,flag_time,bad_amount,bad_cost,cost_mismatch,undated_row,future_row,odd_recorded_at,mixed_id_types,missing_message,refunded_but_succeeded,stranded_charge --grace=- --reason=- --confirm=- --expect=-' ;;
    'ledger correct') options='--dry-run --reason --yes --confirm --expect' plain='@job'
      values='--reason=- --confirm=- --expect=-' ;;
    'ledger export') options='--account --from --to --format' plain='-'
      values='--account=@account --from=- --to=- --format=jsonl,csv,hledger' ;;
    'doctor') options='--bundle --with-ids' plain='-'
      values='--bundle=@file' ;;
    'metrics') options='--file' plain='rules'
      values='--file=@file' ;;
    'db init') options='--dry-run --reason --yes --confirm' plain='-'
      values='--reason=- --confirm=-' ;;
    'db tidy') options='--keep --dry-run --reason --yes --confirm --expect' plain='-'
      values='--keep=- --reason=- --confirm=- --expect=-' ;;
    'db roles') options='--role' plain='-'
      values='--role=-' ;;
    'log list') options='--operator --command --since --limit' plain='-'
      values='--operator=- --command=- --since=- --limit=-' ;;
    'log outcome') options='--fate --limit' plain='@operation'
      values='--fate=died,failing,waiting,succeeded,left --limit=-' ;;
    'log show') options='' plain='@operation'
      values='' ;;
    'config show') options='' plain='-'
      values='' ;;
    'config map') options='--database --ledger --jobs' plain='-'
      values='--database=- --ledger=- --jobs=-' ;;
    'config init') options='--yes --confirm' plain='-'
      values='--confirm=-' ;;
    'config path') options='' plain='-'
      values='' ;;
    'sandbox start') options='--yes --confirm' plain='-'
      values='--confirm=-' ;;
    'sandbox stop') options='--yes --confirm' plain='-'
      values='--confirm=-' ;;
    'sandbox status') options='' plain='-'
      values='' ;;
    'sandbox env') options='' plain='-'
      values='' ;;
    'sandbox reset') options='--yes --confirm' plain='-'
      values='--confirm=-' ;;
    'demo') options='--yes --confirm' plain='-'
      values='--confirm=-' ;;
    'completion show') options='' plain='bash,zsh,fish'
      values='' ;;
    'help') options='' plain='exit-codes,environment,time,output,safety,cron,verdicts,codes,deployments,map,worker'
      values='' ;;
    *) return 1 ;;
  esac
}

_ledgerctl_nouns='balance,job,dead,queue,summary,inbox,ledger,doctor,metrics,db,log,config,sandbox,demo,completion,help'
_ledgerctl_common='--profile --config --output --fields --no-header --quiet --verbose --color --help'
_ledgerctl_common_values='--profile=- --config=@file --output=table,plain,json,jsonl,csv -o=table,plain,json,jsonl,csv --fields=- --color=auto,always,never'

_ledgerctl_commands() { # the commands of a noun
  case $1 in
    balance) echo 'show,replay,list,explain,grant' ;;
    job) echo 'show,list,charge,refund,reclaim' ;;
    dead) echo 'list,show,stats,requeue,release,restore,review' ;;
    queue) echo 'stats,list,push,work,recover' ;;
    summary) echo 'rebuild,drift,show' ;;
    inbox) echo 'audit,stuck,list,show,retry,settle,consume' ;;
    ledger) echo 'audit,repair,correct,export' ;;
    db) echo 'init,tidy,roles' ;;
    log) echo 'list,outcome,show' ;;
    config) echo 'show,map,init,path' ;;
    sandbox) echo 'start,stop,status,env,reset' ;;
    completion) echo 'show' ;;
  esac
}

_ledgerctl_values() { # the values of a kind that begin with what was typed
  local kind=$1 typed=$2 value
  case $kind in
    @file)
      compopt -o filenames 2>/dev/null
      while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen -f -- "$typed") ;;
    @*)
      while IFS= read -r value; do
        [[ $value == "$typed"* ]] && COMPREPLY+=("$value")
      done < <(ledgerctl --complete "${kind#@}" "${COMP_WORDS[@]:1}" 2>/dev/null </dev/null)
      if ((${#COMPREPLY[@]} < 2)) || [[ ${COMP_TYPE-} == 37 || ${COMP_TYPE-} == 42 ]]; then
        COMPREPLY=("${COMPREPLY[@]%%$'\t'*}") # what is inserted has no description
      else
        COMPREPLY=("${COMPREPLY[@]/$'\t'/  }")
      fi ;;
    -) ;;
    *)
      for value in ${kind//,/ }; do [[ $value == "$typed"* ]] && COMPREPLY+=("$value"); done ;;
  esac
}

_ledgerctl_complete() {
  local IFS=$' \t\n' words=() word joined='' raw='' i nouns commands path
  local options values plain kind typed entry previous
  COMPREPLY=()
  for ((i = 0; i <= COMP_CWORD; i++)); do # bash splits words at = and :, put them together again
    word=${COMP_WORDS[i]}
    if ((${#words[@]} > 0)) && { [[ $word == [=:] ]] || [[ $joined == [=:] ]]; }; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
    joined=${word: -1}
  done
  typed=${words[-1]}
  raw=${COMP_WORDS[COMP_CWORD]}
  [[ $raw == [=:] ]] && raw=''
  if ((${#words[@]} == 2)); then
    _ledgerctl_values "$_ledgerctl_nouns" "$typed"
    return
  fi
  path=${words[1]}
  commands=$(_ledgerctl_commands "$path")
  if [[ -n $commands ]]; then
    if ((${#words[@]} == 3)); then
      _ledgerctl_values "$commands" "$typed"
      return
    fi
    path+=" ${words[2]}"
  fi
  _ledgerctl_of "$path" || return 0
  options+=" $_ledgerctl_common"
  values+=" $_ledgerctl_common_values"
  previous=${words[-2]}
  if [[ $typed == --*=* ]]; then
    previous=${typed%%=*}
    typed=${typed#*=}
  fi
  kind=''
  if [[ $previous == -* ]]; then
    for entry in $values; do
      [[ ${entry%%=*} == "$previous" ]] && kind=${entry#*=}
    done
  fi
  if [[ -n $kind ]]; then
    _ledgerctl_values "$kind" "$typed"
  elif [[ $typed == -* ]]; then
    for word in $options; do [[ $word == "$typed"* ]] && COMPREPLY+=("$word"); done
    return
  else
    _ledgerctl_values "$plain" "$typed"
  fi
  raw=${typed%"$raw"} # what bash has put aside at its own breaks
  [[ -n $raw ]] && for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"$raw"}; done
  return 0
}

complete -F _ledgerctl_complete ledgerctl
