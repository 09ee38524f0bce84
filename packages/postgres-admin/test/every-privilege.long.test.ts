import { describe, expect, test } from 'vitest';

import { emptyDatabase } from '../../drizzle-adapter/test/fixtures/empty-database.js';
import { query } from '../../drizzle-adapter/test/fixtures/query.js';
import { RoleLogins } from './fixtures/role-logins.js';
import { runAs } from './fixtures/role-operations.js';

/** One privilege on one object, as a statement that takes it away from a role, and one that gives it back. */
interface Privilege {
  readonly revoke: string;
  readonly grant: string;
}

/** Every single privilege that the statements grant to a role. */
function privilegesOf(statements: readonly string[], role: string): readonly Privilege[] {
  const grants = statements.flatMap((each) => /^grant (.*) on (\w+) (.*) to "(\w+)"$/.exec(each) ?? []);
  const privileges: Privilege[] = [];
  for (let at = 0; at < grants.length; at += 5) {
    const [, names = '', kind, objects = '', grantee = ''] = grants.slice(at, at + 5);
    if (!grantee.endsWith(`_${role}`)) continue;
    for (const name of names.split(', '))
      for (const object of objects.split(/, (?=[^(]*(?:\(|$))/)) {
        const rest = `${name} on ${kind} ${object}`;
        privileges.push({ revoke: `revoke ${rest} from ${grantee}`, grant: `grant ${rest} to ${grantee}` });
      }
  }
  return privileges;
}

describe('a role', () => {
  test.each(['application', 'delivery', 'relay', 'operator'] as const)(
    'has every privilege that its processes need, and no other (%s)',
    { timeout: 300_000 },
    async (role) => {
      // The processes of this test use no tags.
      const logins = await RoleLogins.migrated(await emptyDatabase(), { tables: { tags: [] } });
      expect(await runAs(logins, role)).toBeUndefined();
      const privileges = privilegesOf(logins.granted, role);
      expect(privileges.length).toBeGreaterThan(15);
      const needless: string[] = [];
      for (const { revoke, grant } of privileges) {
        await query(logins.database.url, revoke);
        if ((await runAs(logins, role)) === undefined) needless.push(revoke);
        await query(logins.database.url, grant);
      }
      // Nothing fails without this one: old rows of the default partition stay.
      const optional = /trim_default_partition/;
      expect(needless.filter((revoke) => !optional.test(revoke))).toEqual([]);
    },
  );

  test('of the migrator needs each of its privileges for the first migration', async () => {
    for (const privilege of [
      'connect on database',
      'create on database',
      'create on schema',
      'usage on schema',
    ]) {
      const logins = await RoleLogins.create(await emptyDatabase());
      const object = privilege.endsWith('schema') ? 'public' : logins.database.database;
      await query(logins.database.url, `revoke ${privilege} ${object} from ${logins.prefix}_migrator`);
      await expect(logins.migrate()).rejects.toThrow(/permission denied|The migration 0000_suite failed/);
      await query(logins.database.url, `grant ${privilege} ${object} to ${logins.prefix}_migrator`);
      await logins.migrate();
    }
  });
});
