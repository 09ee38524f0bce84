export { type ShardAdoption, adoptShards, type ShardRelease, releaseShards } from './shard-commands.js';
export { type RoleOptions, grantRoles, type RoleStatements, roleStatements } from './database-roles.js';
export {
  type DatabaseRole,
  type Privileges,
  type TablePrivilege,
  frameworkTables,
} from './role-privileges.js';
