import { defineConfig } from 'drizzle-kit';

export default defineConfig({
  dialect: 'postgresql',
  schema: [
    './src/wallet/wallet-repository.ts',
    './src/transfer/transfer-tables.ts',
    './src/notification/notifications-table.ts',
  ],
  out: './migrations',
});
