import { describe, expect, test } from 'vitest';

import { databaseName, databasePlace, parsePostgresAddress } from './postgres-address.js';

test.each([
  ['global', 'global'],
  ['a%3Bb%2Fc', 'a;b/c'],
  ['a%zzb', 'a%zzb'],
])('the database name of an address that ends in %s is %s', (path, name) => {
  expect(databaseName(`postgresql://db-1/${path}?sslmode=require`)).toBe(name);
});

test.each([
  ['postgresql://db-1:5433/global?sslmode=require', 'db-1:5433/global'],
  ['postgresql://db-1/a%3Bb', 'db-1/a;b'],
  ['postgresql:///global?host=/run&port=5433', '/run:5433/global'],
  ['postgresql://%2Frun%2Fpg/global', '/run/pg/global'],
])('the place of the address %s is %s', (address, place) => {
  expect(databasePlace(address)).toBe(place);
  expect(parsePostgresAddress(address).place).toBe(place);
});

describe('the key of an address', () => {
  test.each([
    ['postgresql://127.0.0.1:5432/global', 'postgresql://localhost/global'],
    ['postgresql://127.0.0.1:5432/global', 'postgres://LocalHost:5432/global'],
    ['postgresql://127.0.0.1/global', 'postgresql://[::1]:5432/global'],
    ['postgresql://db-1.example.com/global', 'postgresql://DB-1.Example.COM.:5432/global'],
    ['postgresql://db/global?a=1&b=2', 'postgresql://db:5432/global?b=2&a=1'],
    ['postgresql://db/global', 'postgresql://db/gl%6Fbal'],
    ['postgresql://db:5433/global', 'postgresql:///global?host=DB&port=5433'],
    ['postgresql://[::1]/global', 'postgresql:///global?host=::1&port=05432'],
    ['postgresql://%2Frun%2FPG/global', 'postgresql://db-1/global?host=/run/PG'],
  ])('is the same for %s and %s', (one, other) => {
    expect(parsePostgresAddress(one).key).toBe(parsePostgresAddress(other).key);
  });

  test.each([
    ['postgresql://db/global', 'postgresql://db:5433/global'],
    ['postgresql://db/global', 'postgresql://db/Global'],
    ['postgresql://db/global', 'postgresql://db-1/global'],
    ['postgresql://db%zz/global', 'postgresql://db/global'],
    ['postgresql://%2Frun%2FPG/global', 'postgresql://%2Frun%2Fpg/global'],
    ['postgresql://%2Frun%2Fpg/global', 'postgresql://%2Frun%2Fpg./global'],
    ['postgresql://db/a%3Fssl=1', 'postgresql://db/a?ssl=1'],
  ])('differs for %s and %s', (one, other) => {
    expect(parsePostgresAddress(one).key).not.toBe(parsePostgresAddress(other).key);
  });
});
