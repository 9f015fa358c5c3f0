"""Reads VTAB-1k's datasets for Vitral in the files that their authors give out."""

from vitral.data.vtab.raw import RawReader
from vitral_vtab.listing import list_files as of_listing

list_files: RawReader = of_listing
