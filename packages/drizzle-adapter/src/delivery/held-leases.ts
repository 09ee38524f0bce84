/**
 * A clause `held` of a statement that writes under leases: those of the rows of `given as g` that still hold, kept until
 * the statement is through. A lease of another history of the database, from before a crash or a failover, does not hold.
 *
 * @param key the handler, slot and token of a given row, as a row
 */
export function heldLeases(key: string): string {
  return `server as materialized (
    select eventlog.server_history() as history
  ), held as (
    select l.handler, l.slot, l.token from eventlog.leases l
    where exists (select from given g where ${key} = (l.handler, l.slot, l.token))
      and l.history = (select history from server)
    for share
  )`;
}
