import type { ActionRecord, KeyRecord } from '@framework/core/adapter';

/** How many parameters {@link keyClause} takes. */
export const keyParameterCount = 9;

/** What happens to a key that is there already, in an insert into `eventlog.idempotency_keys as held`. */
export const keyConflictClause: string =
  'on conflict (key, principal, namespace) do update set action_id = excluded.action_id, ' +
  'action_name = excluded.action_name, fingerprint = excluded.fingerprint, result = excluded.result, ' +
  'created_date = excluded.created_date, expires_date = excluded.expires_date, source = excluded.source ' +
  'where held.expires_date <= now()';

/**
 * The insert of an idempotency key, whose parameters are {@link keyValues}; it returns a row when the key was free.
 *
 * Waits for a transaction that is inserting the same key. An expired key is taken over, so that it is unique at every
 * moment, whether or not its row was deleted yet.
 *
 * @param firstParameter the number of the clause's first parameter
 * @param condition of the insert, if it has one
 */
export function keyClause(firstParameter: number, condition?: string): string {
  const own = (index: number): string => `$${firstParameter + index}`;
  return (
    'insert into eventlog.idempotency_keys as held ' +
    '(key, principal, namespace, action_id, action_name, fingerprint, result, expires_date, source) ' +
    `select ${own(0)}, ${own(1)}, ${own(2)}, ${own(3)}::uuid, ${own(4)}, ${own(5)}, ${own(6)}::jsonb, ` +
    `now() + ${own(7)}::bigint * interval '1 millisecond', ${own(8)}::text ` +
    `${condition === undefined ? '' : `where ${condition} `}${keyConflictClause} returning 1`
  );
}

/** The parameters of {@link keyClause}, in order. */
export function keyValues(
  { id, name }: ActionRecord,
  { key, principal, namespace, fingerprint, result, lifetimeMs, source }: KeyRecord,
): readonly unknown[] {
  return [key, principal, namespace, id, name, fingerprint, result ?? null, lifetimeMs, source ?? null];
}
