import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const manifest = createRequire(import.meta.url).resolve('@framework/drizzle-adapter/package.json');

/** Where the framework's own migrations are: in this package, also when its code is bundled into an application. */
export const frameworkMigrationsFolder: string = join(dirname(manifest), 'migrations');
